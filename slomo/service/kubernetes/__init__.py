"""The scheduler extender, and the view of Pods and Nodes it decides by."""
