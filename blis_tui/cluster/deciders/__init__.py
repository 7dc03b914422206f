"""Deciders: is this request split into prefill and decode? One module a decider."""
