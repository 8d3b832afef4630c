"""CoreWeave: a dated list of prices, and what a cluster says of its node pools. Nothing is rented there."""
