"""What Kiwi writes into the files of other programs: AI clients, editors and git hooks; and takes out again.

`config_edit` edits text and touches no file. `client_files` reads files, keeps their backups and replaces them.
`ai_clients` is the table of clients, with the tasks of VS Code. `git_hooks` runs git and plans the hooks.
`skill_folders` is where agents look for skills, with the file ``kiwi.lock``. Every command first works out all changes
(a plan), and then writes them or only shows them.

::

    ClientFileError               client-file       it cannot be read or written, or a link leads out of its folder
    ├── MalformedClientFile       client-malformed  its client could not parse it; names file and line
    └── NameTaken                 client-taken      it has another entry of the name that Kiwi's has
    HooksRefused                  git-hooks         Kiwi cannot add to the hooks of this repository
    LockInvalid                   lock              kiwi.lock is malformed
    SkillFolderTaken              folder-taken      the folder of a skill holds something else
    InstalledSkillEdited          skill-edited      an installed skill was edited
"""
