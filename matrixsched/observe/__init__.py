"""What a worker shows of itself: metrics, logs and health. All of it subscribes to events; nothing here steers."""
