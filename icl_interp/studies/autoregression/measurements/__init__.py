"""What is measured on a model, and what several claims share."""
