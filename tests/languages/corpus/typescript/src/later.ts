export const later = (n: number): Promise<number> => new Promise((done) => setTimeout(() => done(n + 1), 1));
