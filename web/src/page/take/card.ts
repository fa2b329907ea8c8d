/** A file that can be taken along, which is written when it is asked for. */
import { button, h, setText } from "../dom";
import { attempting } from "../messages";
import { texts } from "../texts";

export class Card {
  readonly element: HTMLElement;
  private readonly help = h("p", {});

  constructor(name: string, file: string, make: () => Promise<BlobPart[]>) {
    const save = async () => {
      start.disabled = true;
      setText(start, texts.making);
      try {
        download(new Blob(await make()), file);
      } finally {
        start.disabled = false;
        setText(start, texts.download(file));
      }
    };
    const start = button(texts.download(file), "primary", attempting(save));
    this.element = h("div", { class: "card" }, h("h3", {}, name), this.help, start);
  }

  show(shown: boolean, help: string): void {
    this.element.hidden = !shown;
    setText(this.help, help);
  }
}

function download(blob: Blob, name: string): void {
  const href = URL.createObjectURL(blob);
  h("a", { href, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(href), 60_000); // the browser reads it after the click
}
