"""The single place that looks at the types of inputs."""
