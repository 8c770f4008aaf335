"""Labels for incomplete gold: what to judge, who judges it, and how far a judge can be trusted."""
