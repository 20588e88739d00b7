-- A local project's registry gets the name that Kiwi's settings have, unless told otherwise (registry_name). Nobody is
-- enrolled: whose signatures count is decided by hand, with enrol_signer().
select public.set_audience('kiwi');
