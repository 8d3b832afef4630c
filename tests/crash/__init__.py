"""Real processes killed at random moments and at named ones; judged by the clouds' own bill and by what the jobs left."""
