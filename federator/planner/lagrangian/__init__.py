"""The Lagrangian matheuristic: prices on narrow links, a proven bound, answers that fit."""
