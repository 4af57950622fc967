"""The nouns, verbs and seams that every floor of the house shares."""
