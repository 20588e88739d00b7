"""The registry: Postgres, embedded or a server; migrations; one typed caller for each SQL function."""
