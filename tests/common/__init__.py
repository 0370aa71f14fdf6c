"""What the test tiers share: real services, small models, and waiting without sleeping."""
