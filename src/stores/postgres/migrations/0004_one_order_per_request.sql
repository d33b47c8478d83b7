-- One order per request, for ever. An inventory that has forgotten a reservation takes a retry of its
-- request again; what that retry is refused by may not depend on the person's limit having been reached.
-- A request may be released several times (its reservation was lost, it tried again), so only orders
-- are unique. Both indexes together hold each row once, as the one before did.
DROP INDEX orders_of_request;
CREATE UNIQUE INDEX orders_one_of_request ON orders (user_id, request_id, activity_id, sku_id)
  WHERE order_id IS NOT NULL;
CREATE INDEX orders_released_of_request ON orders (user_id, request_id) WHERE order_id IS NULL;
