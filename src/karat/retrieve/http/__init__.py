"""http: any search service over HTTP: request, connection, response, and the service itself."""
