"""Benchmarks: what graphformer costs against what people would pick instead; see README.md."""
