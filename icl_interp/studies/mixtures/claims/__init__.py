"""What is claimed: criterion and evidence, a file a claim or a few, named after the ids."""
