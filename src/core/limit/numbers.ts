/** ⌊a ÷ b⌋ of integers, exact up to 2^53: the remainder of floats is exact, their quotient is not. */
export function floorDiv(a: number, b: number): number {
  return (a - (a % b)) / b;
}

/** ⌈a ÷ b⌉ of non-negative integers, exact up to 2^53. */
export function ceilDiv(a: number, b: number): number {
  const rest = a % b;
  return rest === 0 ? a / b : (a - rest) / b + 1;
}

/** ⌊a · b ÷ c⌋ of non-negative integers, exact whatever the product. For rare paths: it allocates. */
export function mulDiv(a: number, b: number, c: number): number {
  const product = a * b;
  return product <= Number.MAX_SAFE_INTEGER
    ? floorDiv(product, c)
    : Number((BigInt(a) * BigInt(b)) / BigInt(c));
}

export function greatestCommonDivisor(a: number, b: number): number {
  let [x, y] = [a, b];
  while (y !== 0) [x, y] = [y, x % y];
  return x;
}
