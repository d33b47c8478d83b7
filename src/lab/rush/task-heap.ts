/** Side tasks by due time: a binary heap, because there are few and they come in any order. */
export class TaskHeap<Task> {
  readonly #due: number[] = [];
  readonly #tasks: Task[] = [];

  get size(): number {
    return this.#tasks.length;
  }

  push(dueMs: number, task: Task): void {
    let at = this.#tasks.length;
    this.#due.push(dueMs);
    this.#tasks.push(task);
    while (at > 0) {
      const parent = (at - 1) >> 1;
      if ((this.#due[parent] ?? 0) <= dueMs) break;
      this.#swap(at, parent);
      at = parent;
    }
  }

  /** The earliest task if it is due, removed; undefined otherwise. O(log size). */
  popDue(nowMs: number): Task | undefined {
    const first = this.#due[0];
    if (first === undefined || first > nowMs) return undefined;
    const last = this.#tasks.length - 1;
    this.#swap(0, last);
    this.#due.pop();
    const task = this.#tasks.pop();
    let at = 0;
    for (;;) {
      const left = 2 * at + 1;
      if (left >= this.#tasks.length) break;
      const right = left + 1;
      const smaller =
        right < this.#tasks.length && (this.#due[right] ?? 0) < (this.#due[left] ?? 0)
          ? right
          : left;
      if ((this.#due[at] ?? 0) <= (this.#due[smaller] ?? 0)) break;
      this.#swap(at, smaller);
      at = smaller;
    }
    return task;
  }

  #swap(a: number, b: number): void {
    const due = this.#due[a] ?? 0;
    const task = this.#tasks[a];
    const other = this.#tasks[b];
    if (task === undefined || other === undefined) return;
    this.#due[a] = this.#due[b] ?? 0;
    this.#due[b] = due;
    this.#tasks[a] = other;
    this.#tasks[b] = task;
  }
}
