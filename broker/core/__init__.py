"""What everyone agrees on: money, time, names, the model, errors and ports. Pure; imports nothing of ours."""
