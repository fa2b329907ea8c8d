/**
 * All words of the page, so that they can be translated in one place. Errors of formats/, engine/ and
 * storage/ are worded there, as in Python.
 */
import type { Choice, TaskName } from "../contract";
import type { Changes } from "./train/changes";

const number = new Intl.NumberFormat("en");
const percent = new Intl.NumberFormat("en", {
  style: "percent",
  minimumFractionDigits: 1,
  maximumFractionDigits: 1,
});

/** So short that it has room beside a chart, whatever it is. */
const loss = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 2 });

function counted(count: number, noun: string): string {
  return `${number.format(count)} ${noun}${count === 1 ? "" : noun.endsWith("s") ? "es" : "s"}`;
}

function size(bytes: number): string {
  if (bytes < 1e6) return `${number.format(Math.ceil(bytes / 1e3))} kB`;
  return `${new Intl.NumberFormat("en", { maximumFractionDigits: bytes < 1e7 ? 1 : 0 }).format(bytes / 1e6)} MB`;
}

function duration(seconds: number): string {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 60) return `${Math.max(1, Math.round(seconds))} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 60 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export const texts = {
  title: "Pocketune studio",
  private: "Nothing leaves this browser.",
  parts: {
    collect: "Collect",
    train: "Train",
    use: "Use",
    take: "Take along",
  },
  skip: "Skip to the content",
  close: "Close",
  cancel: "Cancel",
  percent: (value: number) => percent.format(value),
  number: (value: number) => number.format(value),
  size,
  duration,
  unexpected: (why: string) => `Something went wrong (${why}); reload the page and try again.`,
  otherTab:
    "The studio is open in another tab or window; go on there, or close it and reload this page.",
  noWorker:
    "This browser is too old for the studio; use a current Firefox, Chrome, Edge or Safari.",

  insecure:
    "Without https, the browser gives this page no camera, one thread and no use offline; open it by https, or run pocketune studio on this computer.",

  // Collect
  collectTitle: "Collect photos",
  collectHelp: {
    classification:
      "Give each class a name and some photos of it. Twenty of each are a good start.",
    attributes:
      "Give each attribute a name, and add photos that have it. A photo may have several, or none.",
  },
  taskChoice: "A photo has",
  taskWhileImporting: "Photos are still being imported; wait for them, or cancel it.",
  taskWhileReading: "Files are still being read; wait until they are.",
  taskNames: { classification: "one class", attributes: "any number of attributes" },
  newClass: (task: TaskName, index: number) =>
    `${task === "attributes" ? "Attribute" : "Class"} ${index}`,
  isNewClass: (name: string) => /^(Class|Attribute) \d+$/.test(name),
  addClass: { classification: "Add a class", attributes: "Add an attribute" },
  className: { classification: "Name of the class", attributes: "Name of the attribute" },
  classActions: {
    classification: (name: string) => `Class ${name}`,
    attributes: (name: string) => `Attribute ${name}`,
  },
  deleteClass: { classification: "Delete class", attributes: "Delete attribute" },
  deleteClassSure: {
    classification: (name: string, count: number) =>
      `Delete the class “${name}” with ${counted(count, "photo")}?`,
    attributes: (name: string, count: number) =>
      `Delete the attribute “${name}”? ${count === 1 ? "Its photo stays" : `Its ${counted(count, "photo")} stay`}.`,
  },
  noAttribute: "No attribute",
  notOneClass: (count: number) =>
    `${counted(count, "photo")} ${count === 1 ? "has" : "have"} several attributes or none; give each photo one first.`,
  reservedName: (name: string) =>
    `A table of photos could not have an attribute “${name}”; choose another name.`,
  namelessClass: "A name is needed.",
  strangeName: (name: string) => `“${name}” has a character that cannot be shown; rename it.`,
  longName: (most: number) => `A name has at most ${most} characters.`,
  sameName: (name: string) => `“${name}” is there already; choose another name.`,
  tooManyClasses: (most: number) => `The studio has room for ${number.format(most)} classes.`,
  photos: (count: number) => counted(count, "photo"),
  noPhotos: "No photos yet",
  camera: "Camera",
  files: "Files",
  importFolder: "Import a folder",
  importFiles: "Import a CSV or .zip",
  dropHere: {
    classification:
      "Drop a folder with one folder for each class, a CSV with its photos, or a .zip of either.",
    attributes:
      "Drop photos with a CSV that has a column for each attribute, a folder of both, or a .zip.",
  },
  looseFiles: {
    classification:
      "Drop these photos onto a class, or drop a folder that has one folder for each class.",
    attributes:
      "Drop these photos onto an attribute, or together with a CSV that has a column for each.",
  },
  noFiles: "There are no photos in what was dropped.",
  manyTables: (names: string[]) =>
    `There are ${names.length} tables (${names.slice(0, 3).join(", ")}); drop one of them with its photos.`,
  summary: {
    classification: (count: number, classes: number) =>
      `${counted(count, "photo")} in ${counted(classes, "class")}`,
    attributes: (count: number, attributes: number) =>
      `${counted(count, "photo")} with ${counted(attributes, "attribute")}`,
  },
  otherLabels: {
    classification:
      "These photos have one class each, and the photos here have attributes; add photos to an attribute, or forget everything first.",
    attributes:
      "These photos have attributes, and the photos here have one class each; choose attributes first.",
  },
  uneven: (few: string, many: string, times: number) =>
    `“${many}” has ${number.format(Math.round(times))} times as many photos as “${few}”.`,
  balanced: "The classes are balanced.",
  share: {
    classification: (name: string, count: number, most: number) =>
      `${name}: ${counted(count, "photo")}, where the largest class has ${number.format(most)}`,
    attributes: (name: string, count: number, most: number) =>
      `${name}: ${counted(count, "photo")}, where the most frequent attribute has ${number.format(most)}`,
  },
  importing: (done: number, total: number, left: number) =>
    `${number.format(done)} of ${counted(total, "photo")}, ${duration(left)} left`,
  imported: (count: number, skipped: number) =>
    `${counted(count, "photo")} added` +
    (skipped ? `, ${counted(skipped, "file")} left out` : "") +
    ".",
  noPhoto:
    "no photo that this browser can open: it reads JPEG, PNG, WebP, GIF, BMP and mostly AVIF",
  notTaken: (why: string) => `it could not be read (${why}); try it again`,
  ours: "written by Pocketune and no photos; open a run or kit as a .zip of its own",
  copy: "a copy of a photo that is there",
  tooLarge: (megabytes: number) => `larger than ${megabytes} MB; make it smaller`,
  tooManyPixels: (most: number) =>
    `more than ${number.format(Math.floor(most / 1e6))} million pixels; make it smaller`,
  tooManyFiles: (most: number) =>
    `These are more than ${number.format(most)} files; import them folder by folder.`,
  and: (count: number) => `and ${number.format(count)} more`,
  gridLabel: (name: string) => `Photos of ${name}`,
  gridHelp: "Arrow keys move, Space selects, Delete deletes.",
  selected: (count: number) => `${number.format(count)} selected`,
  selectAll: "All",
  selectNone: "None",
  moveTo: "Move to",
  move: "Move",
  classGone: {
    classification: "This class was deleted meanwhile; choose another one.",
    attributes: "This attribute was deleted meanwhile; choose another one.",
  },
  alsoHas: "Also has",
  giveAttribute: "Give",
  takeAttribute: "Take off",
  deletePhotos: "Delete",
  deletePhotosSure: (count: number) => `Delete ${counted(count, "photo")}?`,

  table: {
    empty: (table: string) => `${table} is empty; list a file and its label on each line.`,
    columns: (table: string, found: string) =>
      `${table} needs the columns file and label, or file and a column for each attribute, but its first line has ${found}; rename its columns.`,
    twoFiles: (table: string, one: string, other: string) =>
      `${table} names photos in the columns ${one} and ${other}; rename one of them to file.`,
    twoPhotos: (table: string, cell: string, one: string, other: string) =>
      `${table} lists ${cell}, which may be ${one} or ${other}; write the names of the files there, with their folders.`,
    differ: (one: string, other: string) =>
      `${one} and ${other} have different columns of labels; give both the same.`,
    tooLarge: (table: string, megabytes: number) =>
      `${table} is larger than the ${megabytes} MB that a table may have; divide it.`,
    noText: (table: string) => `${table} is not a table in UTF-8; save it as one.`,
    noObject: (table: string, line: number) =>
      `${table} does not have a JSON object in line ${line}; save it again.`,
    celebA: (table: string) =>
      `${table} is not CelebA's list of attributes, whose first line is the number of photos and whose second their names; copy it again.`,
    noTitle: (table: string, column: number) =>
      `${table} has no title over column ${column}; name the attribute or remove the column.`,
    sameTitle: (table: string, name: string) => `${table} has two columns “${name}”; keep one.`,
    longRow: (table: string, line: number) =>
      `${table} has more values than titles in line ${line}; name every column, in order.`,
    noValue: (table: string, name: string, line: number) =>
      `${table} has no value for “${name}” in line ${line}; add it.`,
    value: (table: string, value: string, name: string, line: number) =>
      `${table} has “${value.slice(0, 80)}” for “${name}” in line ${line}: write 1 for an attribute that a photo has and 0 or -1 otherwise; for classes, name the columns file and label.`,
    twoWays: (table: string) =>
      `${table} has both 0 and -1 for absent attributes; write one of them throughout.`,
    noFile: (table: string, line: number) => `${table} has no file in line ${line}; add it.`,
    noLabel: (table: string, line: number) => `${table} has no label in line ${line}; add it.`,
    split: (table: string, split: string, line: number) =>
      `${table} has the split “${split}” in line ${line}; write train, val or test.`,
    twice: (table: string, file: string) =>
      `${table} lists ${file} twice, with different labels or splits; keep one line.`,
    samePath: (path: string) =>
      `Two of the files are called ${path}; import one after the other what they are in.`,
    noneGiven: (table: string) =>
      `None of the files that ${table} lists was given with it; drop the folder that holds both.`,
  },
  archive: {
    none: (name: string) => `${name} is not a .zip, or a part of one is missing.`,
    zip64: (name: string) =>
      `${name} is a .zip of the kind ZIP64, which is not read; unpack it and drop its folder.`,
    encrypted: (name: string) => `${name} is encrypted; unpack it and drop its folder.`,
    largeFile: (name: string) => `${name} is larger than 128 MB.`,
    unknown: (name: string) => `${name} is packed in a way that is not read.`,
    damaged: (name: string) => `${name} is damaged; copy it again.`,
    inside: (path: string, name: string) => `${path} in ${name}`,
  },

  // Camera
  record: "Hold to record",
  recording: (count: number) => `Recording: ${counted(count, "photo")}`,
  recordHelp: "Hold the button, or Space. Only frames that differ are kept.",
  otherCamera: "Other camera",
  closeCamera: "Close camera",
  cameraPicture: "What the camera sees",
  noCamera: "No camera was found on this device; add photos as files instead.",
  cameraDenied:
    "The page may not use the camera; allow it in the browser's settings for this page, or add photos as files.",
  cameraLost: "The camera has gone; connect it again and open it once more.",
  cameraBusy: "The camera is in use by another program; close that and try again.",

  // Train
  trainTitle: "Train",
  trainHelp: "A kit is a pretrained network with what it learns. Choose one and press Train.",
  kits: "Kit",
  addKit: "Add a kit (.zip)",
  kitGone: "The kit cannot be loaded; connect to the network once, or add it as a .zip.",
  siteChanged: "The studio was updated while this page was open; reload the page.",
  kitTooLarge: (name: string) => `${name} is larger than 512 MB, which is no kit for a browser.`,
  kitOfOthers: {
    classification: (name: string) =>
      `The kit ${name} was added; it is for photos that have one class each.`,
    attributes: (name: string) =>
      `The kit ${name} was added; it is for photos that have attributes.`,
  },
  removeKit: (name: string) => `Remove the kit ${name}`,
  kitOfModel: "The network in use needs this kit; train or open another network first.",
  kitOfCheckpoint: "The interrupted run needs this kit; let the run go on, or discard it first.",
  kitAdded: (name: string) => `The kit ${name} was checked and added.`,
  kitFacts: (network: string, method: string, pixels: number, values: number) =>
    `${network}, ${pixels} px; trains ${method} (${counted(values, "value")})`,
  keptKit: (digits: string) => `kept in this browser (${digits})`,
  networkNames: {
    efficientnet_lite0: "EfficientNet-Lite0",
    mobilenet_v2: "MobileNetV2",
    mobilenet_v3_small: "MobileNetV3 small",
    mobilenet_v3_large: "MobileNetV3 large",
    mcunet_5fps: "MCUNet",
    proxylessnas_mobile: "ProxylessNAS",
    resnet18: "ResNet-18",
    resnet50: "ResNet-50",
  } as Record<string, string>,
  methodNames: {
    last: "the classifier, which is quickest",
    blocks: "the top blocks",
    mobiletl: "the top blocks, lean",
    full: "everything",
    bias: "biases and the classifier",
    norm: "norms and the classifier",
  } as Record<string, string>,
  oneThread: {
    insecure:
      "One thread computes, as this page came without https; open it by https, or run pocketune studio on this computer.",
    notIsolated:
      "One thread computes, as the browser has not isolated this page; reload it once, or open it in an ordinary window rather than a private one.",
    oneCore:
      "One thread computes, as the browser offers this page one core; another device may be faster.",
  },
  further: (name: string) => `Begin with what ${name} has learned`,
  settings: "Settings",
  settingsHelp: "All of them may stay as they are.",
  epochs: "Epochs",
  rate: "Learning rate",
  headRate: "Learning rate of the classifier",
  rateOfZero: "A learning rate is above 0.",
  optimizer: "Optimizer",
  byDefault: "by default",
  start: "Train",
  again: "Train again",
  pause: "Pause",
  resume: "Go on",
  stop: "Stop and keep the best",
  usable: {
    classification: (accuracy: string | null) =>
      (accuracy
        ? `The network can be used now, and recognizes ${accuracy} of the held-out photos.`
        : "The network can be used now: it has a classifier for your photos.") +
      " Further steps may improve it; to use it ends the run.",
    attributes: (accuracy: string | null) =>
      (accuracy
        ? `The network can be used now, and tells ${accuracy} of the attributes of the held-out photos correctly.`
        : "The network can be used now: it has a classifier for your photos.") +
      " Further steps may improve it; to use it ends the run.",
  },
  useNow: "Use it now",
  discard: "Discard",
  unfinished: (epoch: number, epochs: number) =>
    `A run was interrupted. It can go on from epoch ${epoch} of ${epochs}.`,
  changedSince: ({ gone, deleted, relabeled, added }: Changes) => {
    const changes = [
      ...gone.map((name) => `“${name}” was renamed or deleted`),
      deleted && `${counted(deleted, "photo")} deleted`,
      relabeled && `${counted(relabeled, "photo")} given other labels`,
      added && `${counted(added, "photo")} added`,
    ].filter(Boolean);
    return changes.length
      ? `Since it began, ${changes.join(", ")}. It goes on with the names, labels and photos that it began with, but without those that were deleted.`
      : "";
  },
  importingSure:
    "Photos are still being imported. Train now, on those that have been imported so far?",
  discardSure: "Discard what the interrupted run has learned? This cannot be undone.",
  replaceSure:
    "A new run takes the place of the interrupted one, which then cannot go on. Train anew?",
  needPhotos: {
    classification: "Training needs photos of two classes; collect some first.",
    attributes:
      "Training needs photos that have an attribute and photos that do not; collect some first.",
  },
  toCollect: "Collect photos",
  toTrain: "Train with these photos",
  leftOut: (name: string) => `“${name}” has no photos and is left out.`,
  phases: {
    opening: "Opening the kit",
    features: "Looking at the photos",
    head: "Computing a classifier from the photos",
    training: "Training",
    validating: "Looking at the held-out photos",
    result: "Looking at what it has learned",
    done: "Done",
  },
  paused: "Paused",
  stopping: "Stopping, with the best so far",
  stopped: "Stopped before there was anything to keep",
  epoch: (epoch: number, epochs: number) => `Epoch ${epoch} of ${epochs}`,
  accuracy: "Best accuracy",
  noHeldOut: "not measured: no photos are held out",
  imagesPerSecond: "Images a second",
  heap: "Runtime memory",
  left: "Time left",
  device: "Computed by",
  deviceOf: ({ device, speedup }: Choice) => {
    if (speedup === null) return "processor";
    const times = (value: number) =>
      new Intl.NumberFormat("en", { maximumSignificantDigits: 2 }).format(value);
    return device === "webgpu"
      ? `GPU, ${times(speedup)} times as fast`
      : "processor, the GPU is no faster";
  },
  lossChart: "Loss of each step",
  accuracyChart: "Accuracy on held-out photos after each epoch",
  chartSummary: (what: string, points: number, first: string, last: string) =>
    points ? `${what}: ${points} points, from ${first} to ${last}` : `${what}: no points yet`,
  epochDone: (epoch: number, accuracy: string) => `Epoch ${epoch}: ${accuracy}`,
  doneTitle: "Your network is ready",
  doneText: {
    classification: (accuracy: string, count: number, seconds: number) =>
      `It recognizes ${accuracy} of ${counted(count, "held-out photo")}, after ${duration(seconds)}.`,
    attributes: (accuracy: string, count: number, seconds: number) =>
      `It tells ${accuracy} of the attributes of ${counted(count, "held-out photo")} correctly, after ${duration(seconds)}.`,
  },
  notHeldOut: (classes: number) =>
    classes
      ? ` None are of ${counted(classes, "class")}: nothing tells how well the network recognizes ${classes === 1 ? "it" : "them"}. With ten of each class, some are held out.`
      : "",
  doneNoVal: {
    classification: (seconds: number) =>
      `It has learned all of your photos in ${duration(seconds)}. With ten of each class, some are held out to see how good it is.`,
    attributes: (seconds: number) =>
      `It has learned all of your photos in ${duration(seconds)}. With ten, some are held out to see how good it is.`,
  },
  thisRun: "your last run",
  tryIt: "Try it",
  trainFailed: "The run has stopped.",

  // Use
  useTitle: "Use",
  useHelp: "Show your network something: by the camera, or a photo.",
  noModel: "There is nothing to use yet: train first, or open a run or delta of the command line.",
  trainFirst: "Train",
  startCamera: "Start the camera",
  stopCamera: "Stop the camera",
  choosePhotos: "Choose photos",
  dropPhotos: "Drop or paste photos here",
  onlyFirst: (most: number, others: number) =>
    `Only the first ${number.format(most)} photos are looked at; ${number.format(others)} are left out.`,
  noneOfThese: "none of these",
  noneHelp: "“None of these” is a photo that resembles none of the training photos.",
  inUse: (name: string, task: TaskName, classes: string[]) =>
    `In use: ${name}, with ${counted(classes.length, task === "attributes" ? "attribute" : "class")}.`,
  attributesHelp: "Each attribute is told by itself; the photo has those above 50%.",
  noneOfAttributes: "none of the attributes",
  andList: (names: string[]) => names.join(", "),
  noneByProbability:
    "This run has no description of its classes, so that “none of these” means a probability below one half.",
  results: "Predictions",
  looking: "Looking at it",
  result: (name: string, probability: string) => `${name}, ${probability}`,
  unreadable: "This file is no photo that this browser can open.",
  confusion: "Held-out photos by class and prediction",
  confusionHelp: "A row is a class; a column is what the network takes its photos for.",
  confusionMost: "The classes that are confused most often.",
  cell: (count: number, actual: string, guess: string) =>
    `${counted(count, "photo")} of ${actual}, taken for ${guess}`,
  perAttribute: "Held-out photos by attribute",
  perAttributeHelp:
    "Recall is the share of the photos with an attribute that are told so; precision is the share of those told so that have it.",
  attributeColumns: ["Attribute", "Photos", "Accuracy", "Recall", "Precision"],
  answer: (name: string, present: boolean) => (present ? name : `not ${name}`),
  mistakes: "Worst mistakes",
  noMistakes: "There are none: every held-out photo is recognized.",
  mistake: (actual: string, guess: string, probability: string) =>
    `${actual}, taken for ${guess} (${probability})`,
  noConfusion: "No photos were held out, so that there is nothing to compare.",

  // Take along
  takeTitle: "Take along",
  takeHelp: "The result works with the command line and with other programs, without this page.",
  nothingToTake: "There is nothing to take along yet: collect photos, or train.",
  runZip: "Run",
  runHelp:
    "Everything of the run, for pocketune predict, evaluate, report, export and train --kit.",
  delta: "Delta",
  deltaHelp: "Only what was learned, for a device that has the kit.",
  onnx: "ONNX file",
  onnxHelp: "One network for any program with ONNX Runtime.",
  photosZip: "Photos",
  photosHelp: {
    classification:
      "Your photos in class folders, with those held out apart, for pocketune train, evaluate and report.",
    attributes:
      "Your photos with a table of their attributes and of those held out, for pocketune train, evaluate and report.",
  },
  tooManyToPack: (most: number) =>
    `One .zip has room for ${number.format(most)} photos; take the classes along in parts.`,
  tooMuchToPack: (gigabytes: number) =>
    `One .zip has room for ${gigabytes} GB of photos; take the classes along in parts.`,
  aRun: (name: string) => `${name} is a run, not a kit; open it under “Take along”.`,
  importingWords: "Importing photos",
  download: (name: string) => `Download ${name}`,
  making: "Writing the file",
  openTitle: "Open a run or delta",
  openHelp: "A run of the command line as a .zip, or a delta (.safetensors) of one of the kits.",
  openButton: "Open a file",
  openSure:
    "The file takes the place of your last run, whose run.zip was not downloaded since this page was opened. Open it all the same?",
  opened: (name: string) => `${name} is open; see “Use”.`,
  licenses: "Licenses of what the page contains",
  forgetTitle: "Forget everything",
  forgetHelp: (used: number | null) =>
    "Delete all photos, kits and results that the page keeps in this browser" +
    (used === null ? "." : `, ${size(used)} in all.`),
  forget: "Forget everything",
  forgetSure:
    "Delete all photos, kits and results of the studio from this browser? This cannot be undone.",
  forgotten: "Everything is deleted.",
  lossOf: (value: number) => loss.format(value),
};
