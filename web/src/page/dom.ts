/** Elements without a framework, and what is said to screen readers. */

export type Child = Node | string | number | null | undefined | false;
type Handlers = { [K in keyof HTMLElementEventMap]?: (event: HTMLElementEventMap[K]) => void };
export type Props = { on?: Handlers } & Record<string, unknown>;

/** An element with attributes (or properties, such as `value`), handlers and children. */
export function h<K extends keyof HTMLElementTagNameMap>(
  tag: K,
  props: Props = {},
  ...children: Child[]
): HTMLElementTagNameMap[K] {
  const made = document.createElement(tag);
  assign(made, props);
  append(made, children);
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

export function svg(tag: string, props: Props = {}, ...children: Child[]): SVGElement {
  const made = document.createElementNS(SVG, tag);
  assign(made, props);
  append(made, children);
  return made;
}

/** Replace everything in an element. */
export function fill(element: Element, ...children: Child[]): void {
  element.replaceChildren();
  append(element, children);
}

/** Set a text where it differs, so that live regions and selections are left alone. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

function append(parent: Element, children: Child[]): void {
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false) {
      parent.append(typeof child === "number" ? String(child) : child);
    }
  }
}

function assign(element: Element, { on, ...props }: Props): void {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name in element && !(element instanceof SVGElement) && name !== "list" && name !== "form") {
      (element as unknown as Record<string, unknown>)[name] = value;
    } else
      element.setAttribute(name === "class" ? "class" : name, value === true ? "" : String(value));
  }
  for (const [name, handler] of Object.entries(on ?? {})) {
    element.addEventListener(name, handler as EventListener);
  }
}

/** A button with a visible text; `kind` is a class of styles.css. */
export function button(
  text: string,
  kind: string,
  click: (event: MouseEvent) => void,
  props: Props = {},
) {
  return h("button", { type: "button", class: kind, on: { click }, ...props }, text);
}

/** A button that lets the user choose files. */
export function filePicker(
  text: string,
  kind: string,
  props: Props,
  chosen: (files: File[]) => void,
): HTMLElement {
  const input = h("input", { type: "file", hidden: true, ...props });
  input.addEventListener("change", () => {
    const files = [...(input.files ?? [])];
    input.value = ""; // the same files may be chosen again
    chosen(files);
  });
  return h(
    "span",
    {},
    input,
    button(text, kind, () => input.click()),
  );
}

/** Show a picture, whose bytes are given back once it has been read. */
export function showBlob(image: HTMLImageElement, blob: Blob): void {
  const address = URL.createObjectURL(blob);
  for (const end of ["load", "error"]) {
    image.addEventListener(end, () => URL.revokeObjectURL(address), { once: true });
  }
  image.src = address;
}

/** A field with its label in front of it. */
export function labeled(text: string, field: HTMLElement, hint?: string): HTMLLabelElement {
  return h(
    "label",
    { class: "field" },
    h("span", {}, text),
    field,
    hint ? h("small", {}, hint) : null,
  );
}

let spoken: HTMLElement | undefined;

/** Say something to screen readers. */
export function announce(text: string): void {
  const live = { class: "unseen", role: "status", "aria-live": "polite" };
  spoken ??= document.body.appendChild(h("p", live));
  spoken.textContent = text;
}
