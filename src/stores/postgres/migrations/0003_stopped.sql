-- An operator has stopped the sale of this SKU. Kept here, because the inventory store may forget it.
ALTER TABLE sku_stock ADD COLUMN stopped boolean NOT NULL DEFAULT false;
