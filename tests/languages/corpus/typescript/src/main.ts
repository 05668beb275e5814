import { EventEmitter } from "events";
import { Store, type Item } from "./store";
import * as shapes from "./shapes/index";
import data from "./data.json";

enum Color { Red = 1, Green }
abstract class Base<T> { constructor(protected readonly value: T) {} abstract show(): string }
class Shown extends Base<number> { show(): string { return `<${this.value}>`; } }

const store = new Store<Item>();
store.add({ id: 1, tags: ["ž"] }).add({ id: 2, tags: [] });
console.log(store.size, store.find((i) => i.tags.length > 0)?.id, Color.Green, Color[1]);
console.log(new Shown(7).show(), shapes.area({ kind: "circle", radius: 1 }).toFixed(3), data.name);
const emitter = new EventEmitter();
emitter.on("done", async (n: number) => {
  const { later } = await import("./later");
  console.log(await later(n));
  process.exitCode = 3;
});
emitter.emit("done", 41);
