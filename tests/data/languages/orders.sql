-- The orders and what they cost.

SET search_path = shop;

/* What an order is in. */
CREATE TYPE state AS ENUM ('open', 'closed');

-- One row for each order.
CREATE TABLE IF NOT EXISTS shop.orders (
    id      uuid PRIMARY KEY DEFAULT gen_random_uuid(),
    country text NOT NULL CHECK (country <> ''),
    state   state NOT NULL DEFAULT 'open',
    placed  timestamptz NOT NULL DEFAULT now()
);

CREATE TABLE "lines" (
    order_id uuid REFERENCES shop.orders (id) ON DELETE CASCADE,
    price numeric(10, 2)
);

CREATE UNIQUE INDEX orders_by_country ON shop.orders (country, id);

-- The open ones.
CREATE OR REPLACE VIEW open_orders AS
SELECT id, country
FROM shop.orders
WHERE state = 'open';

CREATE MATERIALIZED VIEW totals AS
SELECT order_id, sum(price) AS total FROM "lines" GROUP BY order_id;

-- What an order costs.
-- Without tax.
CREATE OR REPLACE FUNCTION shop.total(wanted uuid, tax numeric DEFAULT 0)
RETURNS numeric LANGUAGE sql STABLE AS $$
    SELECT sum(price) * (1 + tax) FROM "lines" WHERE order_id = wanted
$$;

CREATE FUNCTION close_order() RETURNS trigger AS $body$
BEGIN
    IF NEW.state = 'closed' THEN
        RAISE NOTICE 'closed %', NEW.id;
    END IF;
    RETURN NEW;
END;
$body$ LANGUAGE plpgsql;

CREATE TRIGGER orders_close
    BEFORE UPDATE ON shop.orders
    FOR EACH ROW EXECUTE FUNCTION close_order();

CREATE PROCEDURE clear(before date) LANGUAGE sql AS $$
    DELETE FROM shop.orders WHERE placed < before;
$$;

INSERT INTO shop.orders (country) VALUES ('is'), ('ee');
GRANT SELECT ON open_orders TO reader;
