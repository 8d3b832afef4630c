"""The rehearsal: `make demo`. A lab, a daemon, one job, a price jump, an interruption, and a checker that trusts nobody."""
