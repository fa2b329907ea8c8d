"""What a trained model is for: predicting, evaluating, exporting."""
