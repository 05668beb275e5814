export interface Item { id: number; tags: string[] }
export class Store<T extends { id: number }> {
  #items = new Map<number, T>();
  add(item: T): this { this.#items.set(item.id, item); return this; }
  find(test: (item: T) => boolean): T | undefined { return [...this.#items.values()].find(test); }
  get size(): number { return this.#items.size; }
}
