"""What is remembered: attachments, desired layouts, definitions, the metadata in the domain."""
