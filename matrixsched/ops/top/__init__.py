"""`matrixsched top`: how the work goes, looked at again and again."""
