"""From a kit to a trained model, on a machine with neither torch nor onnx."""
