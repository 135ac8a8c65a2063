"""The controller: who is there, who does what where, and who steps in for whom."""
