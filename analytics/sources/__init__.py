"""Where records come from: landing folders, whole or as they grow. Lines become typed rows here."""
