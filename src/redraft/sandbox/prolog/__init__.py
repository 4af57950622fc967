"""Trealla Prolog: the interpreter as WebAssembly, its licences, and where its compiled form is kept."""
