"""The playbook: rules that say in a sentence what to fix next."""
