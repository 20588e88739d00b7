-- What everybody may read stands in tables of its own, so that no policy has to hide a row: those that there are let
-- every row through. A table without a policy shows nothing, and nobody but the owner's functions writes.
do $$
declare
    readable text;
begin
    foreach readable in array array['statements', 'statement_files', 'blobs', 'signers', 'settings', 'audit'] loop
        execute format('drop policy if exists readable on kiwi.%I', readable);
        execute format('create policy readable on kiwi.%I for select using (true)', readable);
    end loop;
end
$$;
drop policy if exists readable on kiwi.passages;
create policy readable on kiwi.passages for select using (searchable);
