"""What a list is besides relevant: false evidence, freshness, diversity, hubs, reach."""
