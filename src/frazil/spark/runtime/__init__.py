"""Where Spark runs: the session, the settings of a deployment, the engine, and its errors."""
