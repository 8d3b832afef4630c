"""Lambda: prices of the public cloud. Nothing is rented there."""
