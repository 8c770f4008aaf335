"""What each stage of a system does by itself: retriever, reranker, router, rewriting."""
