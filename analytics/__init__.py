"""Work on tables, large or small, with Spark. Needs the extra ``analytics``."""
