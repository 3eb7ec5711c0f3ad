"""Token by token through a language model: cache, streams, sampling."""
