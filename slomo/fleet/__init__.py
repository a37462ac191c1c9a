"""Use many machines: predict millions of mixes, share models, and measure on many hosts (campaigns)."""
