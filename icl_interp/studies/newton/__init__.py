"""Fu, Chen, Jia & Sharan (2023): layers that move on as Newton's iteration does."""
