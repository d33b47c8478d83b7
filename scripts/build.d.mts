export function newestSourceMs(): number;
export const stampFile: string;
export function buildAll(): Promise<void>;
