/** What a run uses where its settings are left out; see device/train/defaults.py, settings.py. */
import type { Manifest, ParameterSpec, ResolvedSettings, Settings } from "../contract";

const MEASURED_IMAGES = 8;
const FEW_PHOTOS = 200;
const STEPS = 1000;
const SMALL_SET_EPOCHS = 25;
const FEW_STEPS = 250;
const EPOCHS = [10, 100] as const;
const ENOUGH_TO_STOP = 200;
const UNEVEN = 10;
const BALANCE = 0.5;
export const DRAWS = 4;

/** Peak learning rates by group of parameters, for steps of 8 images. */
interface Rates {
  lr: number;
  bias_lr: number;
  side_lr: number;
  decode_lr: number;
  head_lr: number;
}

const ADAM: Rates = { lr: 5e-4, bias_lr: 2e-3, side_lr: 5e-3, decode_lr: 4e-3, head_lr: 1e-3 };
const SGD: Rates = { lr: 2e-3, bias_lr: 2e-3, side_lr: 1e-2, decode_lr: 1e-2, head_lr: 1e-3 };

const KINDS = {
  main: "lr",
  decode_head: "decode_lr",
  branch: "side_lr",
  head: "head_lr",
} as const;

/** What a run's defaults depend on. */
export interface PhotoCounts {
  training: number;
  stepsPerEpoch: number;
  validation: number;
  /** Training photos of the largest class for each of the smallest. */
  imbalance: number;
}

/** All settings of a run, with defaults filled in. */
export function resolve(
  settings: Settings,
  manifest: Manifest,
  photos: PhotoCounts,
): ResolvedSettings {
  const given = settings.epochs !== undefined;
  // Nothing could tell whether steps improve on the start, whose leave-one-out score is known.
  const headAlone = !given && !photos.validation && isLinear(manifest);
  const epochs = settings.epochs ?? (headAlone ? 0 : defaultEpochs(photos.stepsPerEpoch));
  const early = given || !epochs ? 0 : defaultPatience(epochs, photos.validation);
  const cached = manifest.features !== null && epochs >= 2 * DRAWS;
  return {
    epochs,
    optimizer: settings.optimizer,
    ...defaultRates(settings, manifest.batch, photos.training),
    momentum: settings.optimizer === "sgd" ? 0.9 : null,
    weight_decay: 0,
    warmup: 0,
    patience: early,
    balance: isLinear(manifest) && photos.imbalance > UNEVEN ? BALANCE : 0,
    head_start: "auto",
    cache: cached ? "auto" : "off",
    draws: cached ? DRAWS : null,
    seed: settings.seed,
    threads: settings.threads,
  };
}

/** Epochs for a set of photos: few for a large one, many for a small one. */
export function defaultEpochs(stepsPerEpoch: number): number {
  const enough = Math.min(SMALL_SET_EPOCHS, Math.ceil(STEPS / stepsPerEpoch));
  const few = Math.ceil(FEW_STEPS / stepsPerEpoch);
  return Math.min(EPOCHS[1], Math.max(EPOCHS[0], enough, few));
}

/** Epochs without a better validation result before a run stops early; 0 for never. */
export function defaultPatience(epochs: number, validation: number): number {
  return validation >= ENOUGH_TO_STOP ? Math.ceil(epochs / 2) : 0;
}

/**
 * A step of more images may be larger: in proportion for sgd, by the square root for Adam; one on
 * few photos is smaller, by the square root of their number, but for the classifier.
 */
function defaultRates(settings: Settings, images: number, photos: number): Rates {
  const factor = images / MEASURED_IMAGES;
  const few = Math.sqrt(Math.min(1, photos / FEW_PHOTOS));
  const { lr, optimizer, headLr } = settings;
  const [plain, scale] = optimizer === "sgd" ? [SGD, factor] : [ADAM, Math.sqrt(factor)];
  const rate = (key: keyof Rates) => lr ?? plain[key] * scale * (key === "head_lr" ? 1 : few);
  return {
    lr: rate("lr"),
    bias_lr: rate("bias_lr"),
    side_lr: rate("side_lr"),
    decode_lr: rate("decode_lr"),
    head_lr: headLr ?? rate("head_lr"),
  };
}

/** Factors on the peak learning rate of weights, by the parameter's name. */
export function rateFactors(
  settings: ResolvedSettings,
  parameters: readonly ParameterSpec[],
): Map<string, number> {
  return new Map(parameters.map((spec) => [spec.name, settings[rateOf(spec)] / settings.lr]));
}

function rateOf(spec: ParameterSpec): keyof Rates {
  const own = spec.group === "main" || spec.group === "decode_head";
  return own && spec.shape.length === 1 ? "bias_lr" : KINDS[spec.group];
}

/**
 * Whether the output layer of a kit is a weight and a bias on one vector for each photo, so that it can
 * be computed from photos.
 */
export function isLinear(manifest: Manifest): boolean {
  return manifest.embeddings !== null && manifest.task.head.length === 2;
}
