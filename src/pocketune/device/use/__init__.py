"""Use a trained model: predict, evaluate, export."""
