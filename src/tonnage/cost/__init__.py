"""What the answer costs: to buy, to rent, by the token, and where each pays."""
