-- From here on everything belongs to the role that nobody can log in as.
set local role kiwi_owner;
