"""What commands and tools do: functions over `Services` that return records, and never print, prompt or exit."""
