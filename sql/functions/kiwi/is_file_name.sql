-- Whether a name is that of a file below a folder: relative, printable, and it stays there.
create or replace function kiwi.is_file_name(name text) returns boolean
    language sql immutable
    set search_path = pg_catalog, pg_temp
    as $$
        select length(name) <= 1024 and strpos(name, chr(92)) = 0
            and name ~ '^[^/[:cntrl:]]+(/[^/[:cntrl:]]+)*$'
            and name !~ '(^|/)[.][.]?(/|$)'
            -- separators but the space, and what formats, is private or is no character: as Python's isprintable()
            and name !~ e'[\u007f-\u00a0\u00ad\u0600-\u0605\u061c\u06dd\u070f\u1680\u180e\u2000-\u200f\u2028-\u202f]'
            and name !~ e'[\u205f-\u206f\u3000\ue000-\uf8ff\ufeff\ufff0-\ufffb\ufffe\uffff\U000e0000-\U0010ffff]'
    $$;
