"""MMIE's rubric judge as a chain: a request, any chat stage, and a reader of its reply."""
